"""Links between ranks of different hosts: connections, Puts over them, and who goes on where they break."""
