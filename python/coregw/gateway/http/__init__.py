"""HTTP below the routes: connections, dispatch, request bodies, conditional requests, and error responses."""
