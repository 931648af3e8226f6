"""The engine's shell: reads the world, asks the engine, carries out what it says. The same loop everywhere."""
