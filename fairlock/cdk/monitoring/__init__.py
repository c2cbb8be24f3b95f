"""`LockMonitoring`: a dashboard, alarms and saved queries for a lock service."""
