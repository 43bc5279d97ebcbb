"""Programs that write a page of docs each, what these run on ranks, and the pictures of a screen."""
