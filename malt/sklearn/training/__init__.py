"""How estimators are trained by all ranks."""
