"""Copy a TRL run's log without its lengths and token counts, to see what a card makes of less.

python examples/strip_lengths.py RUN FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

run, folder = (Path(name) for name in sys.argv[1:])
shutil.copytree(run, folder)
state = json.loads((run / "trainer_state.json").read_text())
for row in state["log_history"]:
    for key in [key for key in row if key.startswith("completions/") or key == "num_tokens"]:
        del row[key]
(folder / "trainer_state.json").write_text(json.dumps(state))
