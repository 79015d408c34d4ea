"""Behaviours that were considered and are no clause, each with the reason. Their ids stay taken."""

LEFT_OUT: dict[str, str] = {
    "AMP-04": "other precision contexts (FP8) are a use of `context_fn`, which API-13 covers.",
    "CTX-06": "in which thread a replay runs is not promised, and a program cannot tell without its own thread tools.",
    "DET-06": "ties in a selection and kernels that differ from run to run need hardware that is not deterministic;"
    " what then happens is the function's duty. DET-01 and DET-02 say what is noticed of it.",
    "GROUP-12": "leaving a group that was not entered promises nothing.",
    "MUT-08": "a facility that allows mutation of saved tensors tells them apart by address; its own result was seen to"
    " change from run to run of the same program.",
    "REENT-07": "a backward inside backward across two devices needs two devices to be seen; no run of ours has them.",
    "SIDE-03": "that a function can know it is in a replay is offered by nobody; the second context of `context_fn`"
    " (API-13) serves.",
}
