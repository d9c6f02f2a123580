"""The methods of `Holdfast`, by purpose. Each part names what it needs of an application: parts.py."""
