"""Ranks of a training job, one process per host: start them together, watch them, and let none outlive the job."""
