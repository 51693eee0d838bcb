"""Measure points per second of GenZ (genz-llm 0.0.16): decode of Llama-3.1-70B on an H100 given by its numbers."""

import warnings

import GenZ
import timing

H100 = {"Flops": 989, "Memory_size": 80, "Memory_BW": 3350, "ICN": 450, "real_values": True}


def decode(tp):
    def step(batch, length):
        result = GenZ.decode_moddeling(
            model="meta-llama/Llama-3.1-70B",
            batch_size=batch,
            input_tokens=length,
            output_tokens=1,
            Bb=1,
            system_name=H100,
            bits="bf16",
            tensor_parallel=tp,
            model_offload=True,
            parallelism_heirarchy=f"TP{{{tp}}}_EP{{1}}_PP{{1}}",
        )
        return float(result["Latency"]) / 1e3

    return step


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    timing.report("genz-llm", {"decode_moddeling": (decode, 10)})
