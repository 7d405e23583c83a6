"""Commands of users to a gang of any API, executed through the API of its owner: hold, release, cancel."""
