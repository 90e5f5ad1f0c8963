"""What concerns the whole process: its start, its forks, its output, its hardware."""
