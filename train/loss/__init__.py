"""What is learned: cells assigned to boxes, the loss against labels, the loss against teachers."""
