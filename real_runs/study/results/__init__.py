"""What a study's records say, as numbers: integrity, frontiers, disagreement, regimes, calibration, replay.

Everything is computed from records and the study file alone; what is not there yet is named and left out.

    evidence     records by stage, what is missing, runs cut short, rates relative to the tuned ones
    integrity    runs by status, overruns, sums of FLOPs
    response     one IsoFLOP slice with several targets, and its bootstrap
    optima       ρ*, shares and steps at the optimum, differences between reward systems
    targets      how far targets disagree, and what optimising one costs another
    learning     learning curves against the update ratio
    regimes      RACE decided from small pilots against the full budget, and leaving one LoRA rank out
    calibration  the surrogate against settings that it was not shown
    prior        the simulator against the measurements before any of them is used
    replay       the planner and its peers choosing among recorded runs
    recorded     runs of a grid handed out as if they were being made
    tables       all of it as Markdown (`tables_race`: what surrogate and planner make of it; `legends`)
    page         tables between markers on a page that people write on too
    figures      the pictures
    study        all of it in order
"""
