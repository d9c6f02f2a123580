"""The methods of `Holdfast`, by what they are for. Each part names what it needs of an application: parts.py."""
