"""The simulators: one request at a time, or as vLLM schedules them. They compile `algorithms`."""
