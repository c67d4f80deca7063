"""Log odds of ones: an exact sampler of the logistic model by data augmentation."""
