"""Reports: what a fitted surrogate and its evidence look like, as one self-contained page and as single figures.

Everything here draws plain data (`ReportData`); where the numbers come from is none of its business.
"""

from race.reports.data import Line, ReportData, Run, Slice, WhatIf

__all__ = ["Line", "ReportData", "Run", "Slice", "WhatIf"]
