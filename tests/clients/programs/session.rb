# A session of ruby-pg with types of its own maps; each line is what it saw.
require 'json'
require 'pg'
port, password, table = ARGV
db = PG.connect(host: '127.0.0.1', port: port, dbname: 'cairn', user: 'admin', password: password)
db.type_map_for_results = PG::BasicTypeMapForResults.new(db)
db.type_map_for_queries = PG::BasicTypeMapForQueries.new(db)
put = "INSERT INTO #{table} (small, name, price, there) VALUES ($1, $2, $3, $4) RETURNING id"
puts db.exec_params(put, [7, 'é', '1.50', true]).values.to_json
puts db.exec("SELECT id, small, name, there FROM #{table}").values.to_json
puts db.exec("SELECT ARRAY[1, 2], ARRAY['a'], 1.5::float8").values.to_json
db.copy_data("COPY #{table} (id, small, name) FROM STDIN", PG::TextEncoder::CopyRow.new) do
  3.times { |at| db.put_copy_data [100 + at, at, 'copied'] }
end
puts db.exec("SELECT count(*) FROM #{table}").values.to_json
begin
  db.exec("INSERT INTO #{table} (id) VALUES (1)")
rescue PG::UniqueViolation => problem
  puts problem.result.error_field(PG::PG_DIAG_CONSTRAINT_NAME)
end
db.transaction { |inside| inside.exec("UPDATE #{table} SET small = 9 WHERE id = 1") }
puts db.exec("SELECT small FROM #{table} WHERE id = 1").values.to_json
