"""Our plans beside the exact and the approximate references of the field, on the nets of Checkmate's paper (Jain et al., MLSys
2020) and on programs of ours: all in one model of memory and time, and nothing runs."""
