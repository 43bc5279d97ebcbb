"""Topics of a bag of words, by collapsed Gibbs sampling: python -m apps.lda."""
