"""What both faces of the driver share: routes, flows, retries. It does no input or output."""
