"""What is computed: points, derivatives, matrices, and the programs behind them."""
