"""The admission webhook: the API server asks before it accepts an object, and is told what it would come to."""
