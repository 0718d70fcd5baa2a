"""The governor's rules, a module for each subject, in the order of `plan.RULES`."""
