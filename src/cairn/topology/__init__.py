"""Who is in the cluster: finding each other, joining, telling clients what changed."""
