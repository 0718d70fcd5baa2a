"""Changes of the schema, of users, rights, settings, procedures and views."""
