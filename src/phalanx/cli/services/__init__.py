"""Long-running commands: scheduler, controllers, webhook, hub, dashboard and accounting."""
