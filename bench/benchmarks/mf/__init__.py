"""apps.mf against LIBMF, and several ranks against one."""
