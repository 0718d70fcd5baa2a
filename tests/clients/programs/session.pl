# A session of DBD::Pg; each line is what it saw.
use strict;
use warnings;
use DBI;
my ($port, $password, $table) = @ARGV;
my $db = DBI->connect("dbi:Pg:host=127.0.0.1;port=$port;dbname=cairn", 'admin', $password,
    { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
$db->do("INSERT INTO $table (small, name, price, there) VALUES (?, ?, ?, ?)", undef, 7, 'x', '1.50', 't');
print $db->last_insert_id(undef, undef, $table, undef), "\n";
print join('|', @{ $db->selectrow_arrayref("SELECT id, small, name, price, there FROM $table") }), "\n";
my $columns = $db->column_info(undef, 'public', $table, '%')->fetchall_arrayref({});
print join('|', map { "$_->{COLUMN_NAME} $_->{TYPE_NAME}" } @$columns), "\n";
print join('|', $db->primary_key(undef, 'public', $table)), "\n";
my $statistics = $db->statistics_info(undef, 'public', $table, 1, 0)->fetchall_arrayref({});
print join('|', map { "$_->{INDEX_NAME} $_->{COLUMN_NAME} $_->{ASC_OR_DESC}" }
    grep { defined $_->{INDEX_NAME} } @$statistics), "\n";
$db->begin_work;
$db->do("UPDATE $table SET small = 8 WHERE id = 1");
$db->pg_savepoint('here');
$db->do("UPDATE $table SET small = 9 WHERE id = 1");
$db->pg_rollback_to('here');
$db->commit;
print $db->selectrow_array("SELECT small FROM $table WHERE id = 1"), "\n";
$db->do("COPY $table (id, name) FROM STDIN");
$db->pg_putcopydata("50\tcopied\n");
$db->pg_putcopyend;
print $db->selectrow_array("SELECT count(*) FROM $table"), "\n";
