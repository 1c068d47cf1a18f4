"""Values of a render that the template language and the incremental engine share."""
