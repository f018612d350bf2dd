"""Checks of the gradients that other people's servers answer: UM-Bridge, Tesseract, the Open Inference Protocol.

They need NumPy alone, so a server is checked from where its clients run, without TensorFlow.
"""
