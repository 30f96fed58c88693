"""`paceline bench`: measurements that anyone can repeat. See ARCHITECTURE.md."""
