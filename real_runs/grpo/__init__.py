"""Group relative policy optimisation (Shao et al. 2024, arXiv 2402.03300), in parts that can be read alone.

    seeds       one integer per (run, step, phase): the only source of randomness
    batch       prompts and completions as tensors, ragged lengths honoured
    logprobs    log-probabilities of completion tokens under the policy or its base
    advantage   rewards to advantages, within a group
    selection   which samples are trained on, in which pass
    loss        advantages and log-probabilities to a loss
    update      the passes of one step
    pricing     FLOPs of all of that, before and after
    step        one whole step under a budget
"""
