"""ASK questions: runnable scripts, workloads, results and reports on top of topologies, testbed and controller."""
