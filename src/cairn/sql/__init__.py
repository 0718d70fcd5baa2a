"""SQL: text in, plan out. `api.prepare` is the way in; nothing here touches a file or a clock."""
