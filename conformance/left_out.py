"""Behaviours that were considered and are no clause, each with the reason. Their ids stay taken."""

LEFT_OUT: dict[str, str] = {
    "AMP-04": "other precision contexts (FP8) are a use of `context_fn`, which API-13 covers.",
    "COMPILE-04": "a compiler that chooses by itself what to recompute, within a budget, has no regions; what it"
    " recomputes is no replay of anything that a program named.",
    "COMPILE-07": "in one compiled step that also computes the gradients, a compiler may merge the probe's calls of"
    " forward and replay although it does not merge their arithmetic; COMPILE-02 sees it where"
    " forward and backward are apart.",
    "COMPILE-09": "what a tracer other than the compiler records of an eager call is its own affair.",
    "COMPILE-10": "speaks of how one compiler's graph may look.",
    "CTX-06": "in which thread a replay runs is not promised, and a program cannot tell without its own thread tools.",
    "DECO-15": "is COMPILE-11.",
    "DET-06": "ties in a selection and kernels that differ from run to run need hardware that is not deterministic;"
    " what then happens is the function's duty. DET-01 and DET-02 say what is noticed of it.",
    "GROUP-12": "leaving a group that was not entered promises nothing.",
    "MUT-08": "a facility that allows mutation of saved tensors tells them apart by address; its own result was seen to"
    " change from run to run of the same program.",
    "REENT-07": "a backward inside backward across two devices needs two devices to be seen; no run of ours has them.",
    "SIDE-03": "that a function can know it is in a replay is offered by nobody; the second context of `context_fn`"
    " (API-13) serves.",
}
