"""Symmetric positive definite matrices of about a dozen rows, as lists of rows.

The client uses only the standard library, so the few operations of a small regression are here.
"""

import math
from collections.abc import Sequence
from operator import mul

Matrix = list[list[float]]


def cholesky(matrix: Sequence[Sequence[float]]) -> Matrix:
    """The lower triangular factor L with L·Lᵀ = a positive definite matrix, as rows of rising length.

    Example:
        >>> cholesky([[4.0, 2.0], [2.0, 5.0]])
        [[2.0], [1.0, 2.0]]
    """
    factor: Matrix = []
    for number, row in enumerate(matrix):
        new: list[float] = []
        for column in range(number):
            done = sum(map(mul, new, factor[column]))
            new.append((row[column] - done) / factor[column][column])
        new.append(math.sqrt(row[number] - sum(map(mul, new, new))))
        factor.append(new)
    return factor


def forward_solve(factor: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """The solution x of L·x = vector."""
    solved: list[float] = []
    for row, value in zip(factor, vector, strict=True):
        solved.append((value - sum(map(mul, solved, row))) / row[len(solved)])
    return solved


def solve(factor: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """The solution x of L·Lᵀ·x = vector.

    Example:
        >>> solve(cholesky([[4.0, 2.0], [2.0, 5.0]]), [8.0, 8.0])
        [1.5, 1.0]
    """
    solved = forward_solve(factor, vector)
    for row in range(len(factor) - 1, -1, -1):
        solved[row] /= factor[row][row]
        for column in range(row):
            solved[column] -= factor[row][column] * solved[row]
    return solved


def log_determinant(factor: Sequence[Sequence[float]]) -> float:
    """The logarithm of the determinant of L·Lᵀ."""
    return 2 * sum(math.log(row[-1]) for row in factor)


def inverse(factor: Sequence[Sequence[float]]) -> Matrix:
    """The inverse of L·Lᵀ.

    Example:
        >>> inverse(cholesky([[4.0, 0.0], [0.0, 16.0]]))
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    size = len(factor)
    # Columns of L⁻¹ from the diagonal on; the inverse is L⁻ᵀ·L⁻¹, and symmetric.
    columns = [
        forward_solve([row[column:] for row in factor[column:]], [1.0] + [0.0] * (size - column - 1))
        for column in range(size)
    ]
    inverted = [[0.0] * size for _ in range(size)]
    for row, one in enumerate(columns):
        for column, other in enumerate(columns[: row + 1]):
            inverted[row][column] = inverted[column][row] = sum(map(mul, one, other[row - column :]))
    return inverted


def times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """The product of a matrix and a vector; rows may be shorter than the vector."""
    return [sum(map(mul, row, vector)) for row in matrix]
