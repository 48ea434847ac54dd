"""A lean forward for Qwen2/Qwen3/Llama/Mistral decoders with LoRA, on the weights of the transformers model itself.

Same matmuls, same numbers (to float rounding), fewer passes over memory and less Python in between: at nano size on a
CPU that halves the time of a step. It exists because transformers and PEFT are written for large matrices: adapters
scale and add in separate passes, LoRA gradients are multiplied in an orientation that CPU kernels are slow at, and
each module call costs more than its arithmetic.

    weights     reads base and adapter weights out of the modules; says why a model cannot be read
    functions   norm, rotary embedding, gated activation, adapted projections, with their gradients
    decoder     hidden states of whole sequences, differentiable in the adapters
    cached      prefill and one-token steps against a key/value cache

What it leaves out, and `weights.read_decoder` refuses: sliding windows, mixtures of experts, dropout, DoRA and other
adapters, gradient checkpointing, mixed precision. `RunOptions.forward` chooses; transformers remains the reference
that tests compare with.
"""
