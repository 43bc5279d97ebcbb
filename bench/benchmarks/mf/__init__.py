"""apps.mf against LIBMF."""
