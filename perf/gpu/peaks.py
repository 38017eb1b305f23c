"""Dense bf16 peaks of GPUs by device name, FLOP/s, sums in float32, as NVIDIA's datasheets say.

Lightning's table (get_available_flops) does not recognise "NVIDIA H200", has the rates of sparse
matrices for H200 and H100 NVL, and has half the rates or less for RTX 4090, RTX 3090 and A40. If a
device's name contains several names, the longest counts.
"""

import re

PEAKS = {
    r"B200": 2250e12,
    r"GH200": 989.4e12,
    r"H200": 989.4e12,
    r"H200 NVL": 835.5e12,
    r"H100": 989.4e12,
    r"H100 PCIe": 756e12,
    r"H100 NVL": 835.5e12,
    r"A100": 312e12,
    r"A40": 149.7e12,
    r"A10": 125e12,
    r"L40S": 362e12,
    r"L40": 181e12,
    r"L4": 121e12,
    r"RTX 4090": 165.2e12,
    r"RTX 3090": 71e12,
}


def peak(device: str) -> float | None:
    """Peak of a device, by the name that PyTorch gives it; None if it is not in the table."""
    names = [name for name in PEAKS if re.search(rf"\b{name}\b", device)]
    return PEAKS[max(names, key=len)] if names else None
