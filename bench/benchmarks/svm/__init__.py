"""apps.svm against other programs, beside a slow rank, and on busy cores."""
