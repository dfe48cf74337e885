"""HTTP below the routes: requests and their bodies, responses, and connections."""
