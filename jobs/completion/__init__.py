"""Completions of shells.

completion  the tool that prints a script
table       the tools' flags as data, which need no tool to be imported
scripts     scripts of bash, zsh and fish from that table
"""
