"""The experiments of the papers that MALT is compared with: a folder for each."""
