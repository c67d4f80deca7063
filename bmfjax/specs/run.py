"""Numbers of a run that help texts and documentation name, too."""

#: Steps of warm-up before a given number of draws, where they are not given.
NUM_WARMUP = 1000
#: The fewest draws of a chain for a result.
LEAST_KEPT = 4
#: The largest share of the entries that is hidden on request.
MOST_HIDDEN = 0.5
#: Draws of chains that run apart, where no number is given: they cannot look at each other.
NUM_SAMPLES = 1000
#: The most factors that a fit looks for which finds their number itself.
MAX_RANK = 20
#: The most binary features of a large matrix, which mostly has more than twenty; and what is large:
#: so many rows and columns, and entries from which on chains find so many features, and up to which
#: a first verdict is in time with them.
LARGE_MAX_RANK, LARGE_SIDE, LARGE = 40, 100, (100_000, 400_000)
#: Seconds that a fit which is to end by itself may take, where none are given.
MAX_TIME = 300.0
#: Seconds from one checkpoint to the next.
CHECKPOINT_SECONDS = 10.0
#: Entries up to which the logistic model looks at all of them in every step, by default.
BATCH = 10**8
#: What ends a run that finds out itself when it is done: all parts of its verdict as "reliable"
#: asks for, one of them, or all of them as "usable" does, which is the first answer.
UNTIL = ("all", "predictions", "usable")
#: The most that chains may be apart in a prediction, and that its Monte Carlo error may be.
ACCURATE = 0.05
#: A mean error of probabilities that is no reason against predictions, however surely it is there:
#: half of what they are said to be exact to. It costs an entry about 0.002 nats, of the 0.3 to 0.6
#: that columns alone leave.
SLIGHT = ACCURATE / 2
