"""Graders of answers, queries, file trees and programs. Knows no policy and no model."""
