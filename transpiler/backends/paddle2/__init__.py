"""ProgramDesc programs (Paddle 2.x): import, emission, operator facts."""
