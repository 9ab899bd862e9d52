"""What a model tells about itself: shapes on the way, costs, attention."""
